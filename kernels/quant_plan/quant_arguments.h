// What a plan asks of the arrays of a call.
#pragma once

#include <span>
#include <string>

#include "steelyard/kernels/quant_plan/quant_arrays.h"

namespace steelyard::kernels {

// What is absent, of another type or length, not aligned, not writable or not apart; "" where
// nothing is. No array is read.
std::string problem_with(const QuantProblem& problem, const QuantArrays& arrays);

struct CheckedCall {
  const QuantProblem* problem;
  const QuantArrays* arrays;
};

// Where arrays of two calls share memory that one of both writes: "item 3: expected y and item 1's
// x apart ...". "" where none do.
std::string problem_between(std::span<const CheckedCall> calls);

// The first array that has bytes of [begin, begin + bytes); null where none has.
const char* first_over(const QuantProblem& problem, const QuantArrays& arrays, const void* begin,
                       std::size_t bytes);

QuantArgs pointers_of(const QuantArrays& arrays);

}  // namespace steelyard::kernels
