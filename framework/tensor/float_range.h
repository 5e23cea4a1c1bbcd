// Checks that numbers from files can be used in float32.
#pragma once

#include <string>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// Throws InputError naming the first number of an f64 tensor that is finite but not in float32:
// "fc.weight: 1e+300 at [0, 7] is beyond float32". Other dtypes have none.
void require_within_float32(const Tensor& tensor, const std::string& what);

// Whether `value` is a whole number of more than 6 digits (FLT_DIG) that float32 rounds: times in
// seconds and long numbers of customers would become equal, numbers as 1.496e11 stay apart.
bool is_whole_and_rounded(double value);

// Throws likewise for the first of those in an f64 tensor.
void require_whole_numbers_kept(const Tensor& tensor, const std::string& what);

// Integers of any dtype as f32, which holds those of at most 2^24 exactly. Throws likewise for
// others.
Tensor whole_numbers(const Tensor& integers, const std::string& what);

// Throws likewise for numbers that are not finite, of any floating-point dtype on the CPU.
void require_finite_values(const Tensor& tensor, const std::string& what);

}  // namespace steelyard
