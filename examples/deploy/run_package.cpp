// SPDX-License-Identifier: Apache-2.0
// A package of AOTInductor on the simulated device, without Python in the process:
//
//     ./run_package MODEL.pt2 [sim|sim:1]
//     ./run_package MODEL_ON_CPU.pt2 cpu
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>
#include <ulpscope_sim/torch.h>

#include <iostream>

int main(int argc, char **argv)
try {
    if (argc < 2) {
        std::cerr << "usage: run_package MODEL.pt2 [DEVICE]\n";
        return 2;
    }
    ulpscope_sim::load(); // from here on torch knows the device, and its packages
    const torch::Device device(argc > 2 ? argv[2] : "sim");
    torch::NoGradGuard no_grad;
    const c10::DeviceIndex index = device.has_index() ? device.index() : -1;
    torch::inductor::AOTIModelPackageLoader package(argv[1], "model", false, 1, index);
    const torch::Tensor x = torch::linspace(-1, 1, 2 * 3 * 16 * 16).view({2, 3, 16, 16});
    const torch::Tensor y = package.run({x.to(device)})[0];
    std::cout << y.device() << '\n';
    const torch::Tensor host = y.cpu().contiguous().view(-1);
    for (int64_t i = 0; i < host.numel(); i++)
        printf("%a\n", host[i].item<float>());
    return 0;
} catch (const std::exception &problem) {
    const std::string said = problem.what(); // behind the first line: where in torch
    std::cerr << "run_package: " << said.substr(0, said.find('\n')) << '\n';
    return 2;
}
