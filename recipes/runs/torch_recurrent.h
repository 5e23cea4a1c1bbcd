// Weights of recurrent layers as PyTorch names and orders them.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/named_tensor.h"

namespace steelyard {

// For each LSTM and GRU of the model whose weight_ih_l0 is among the tensors: PyTorch's
// weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0 (torch.nn.LSTM, torch.nn.GRU) become the
// layer's own parameters, and what PyTorch does not store, its buffers, keeps the model's values.
// Tensors of other shapes keep their rows' order, so that loading says what is wrong.
void from_torch_recurrent(std::vector<NamedTensor>& tensors, Module& model);

}  // namespace steelyard
