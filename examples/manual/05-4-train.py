# SPDX-License-Identifier: Apache-2.0
"""Chapter 5.4: the training script. Its pictures, 3x32x32 of ten classes, are made here and not fetched."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import ulpscope.sim  # noqa: F401

# 1. prepare dataset
torch.manual_seed(0)
patterns = torch.randn(10, 3, 32, 32)


def pictures(n):
    labels = torch.arange(n) % 10
    return torch.utils.data.TensorDataset(patterns[labels] + torch.randn(n, 3, 32, 32), labels)


batch_size = 4
trainset, testset = pictures(160), pictures(40)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=batch_size, shuffle=True, num_workers=2)
testloader = torch.utils.data.DataLoader(testset, batch_size=batch_size, shuffle=False, num_workers=2)
device = torch.device("sim")


# 2. build network
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)  # flatten all dimensions except batch
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


if __name__ == "__main__":
    net = Net().to(device)
    # 3. define loss and optimizer
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    # 4. train
    for epoch in range(3):
        running_loss = 0.0
        for i, data in enumerate(trainloader, 0):
            inputs, labels = data
            optimizer.zero_grad()
            outputs = net(inputs.to(device))
            loss = criterion(outputs, labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            if i % 20 == 19:
                print(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 20:.3f}")
                running_loss = 0.0
    print("Finished Training")
    PATH = "./cifar_net.pth"
    torch.save(net.state_dict(), PATH)
    net.load_state_dict(torch.load(PATH))
    # 5. test
    correct = 0
    total = 0
    with torch.no_grad():
        for data in testloader:
            images, labels = data
            outputs = net(images.to(device))
            _, predicted = torch.max(outputs.data, 1)
            total += labels.size(0)
            correct += (predicted == labels.to(device)).sum().item()
    print(f"Accuracy of the network on the {total} test images: {100 * correct // total} %")
