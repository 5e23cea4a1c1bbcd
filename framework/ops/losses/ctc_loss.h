// The loss of sequences whose alignment with the outputs is not known.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

struct CtcOptions {
  std::int64_t blank = 0;      // the class of no character
  bool zero_infinity = false;  // a target that its frames cannot spell counts as a loss of 0
  Tensor frames = {};          // i64 [N], of each sample; undefined: all of them
};

// Connectionist temporal classification (Graves et al., ICML 2006): the mean over samples of -log
// p(target) / its length (at least 1), where p(target) is the probability of all ways in which the
// frames' classes spell the target once repeats are joined and blanks are dropped. logits [N, T, C]
// (log-probabilities are logits too), targets i64 [N, L], each followed by -1 where it is shorter.
// An impossible target gives an infinite loss unless zero_infinity says otherwise. Throws
// std::out_of_range for a target that is the blank or no class; on a GPU it makes the loss NaN.
Variable ctc_loss(const Variable& logits, const Tensor& targets, const CtcOptions& options = {});

}  // namespace steelyard
