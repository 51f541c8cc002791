// SPDX-License-Identifier: Apache-2.0
// A model of TorchScript on the simulated device, without Python in the process:
//
//     ./run_model MODEL.pt [sim|sim:1|cpu]
#include <torch/script.h>
#include <ulpscope_sim/torch.h>

#include <iostream>

int main(int argc, char **argv)
try {
    if (argc < 2) {
        std::cerr << "usage: run_model MODEL.pt [DEVICE]\n";
        return 2;
    }
    ulpscope_sim::load(); // from here on torch knows the device
    const torch::Device device(argc > 2 ? argv[2] : "sim");
    torch::NoGradGuard no_grad;
    torch::jit::script::Module model = torch::jit::load(argv[1], device);
    model.eval();
    const torch::Tensor x = torch::linspace(-1, 1, 2 * 3 * 16 * 16).view({2, 3, 16, 16});
    const torch::Tensor y = model.forward({x.to(device)}).toTensor();
    std::cout << y.device() << '\n';
    const torch::Tensor host = y.cpu().contiguous().view(-1);
    for (int64_t i = 0; i < host.numel(); i++)
        printf("%a\n", host[i].item<float>());
    return 0;
} catch (const std::exception &problem) {
    const std::string said = problem.what(); // behind the first line: where in torch
    std::cerr << "run_model: " << said.substr(0, said.find('\n')) << '\n';
    return 2;
}
