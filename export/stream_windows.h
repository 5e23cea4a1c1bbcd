// What a stream is expected to give: the outputs of a graph for the windows of a sequence.
#pragma once

#include <cstdint>

#include "steelyard/export/stream.h"

namespace steelyard::deploy {

// Codes of the new frames of so many calls, i8 [calls, ...input of the stream]: all codes as noise,
// those of the generator x * 1664525 + 1013904223 of `seed`.
Tensor noise_of_calls(const Stream& stream, std::int64_t calls, std::uint32_t seed);

// For the codes of each call's new frames, what the graph of whole windows gives for the window
// that ends with them: i8 [calls, ...output of the stream]. Frames before the first have the zero
// point.
Tensor stream_outputs(const Stream& stream, const Graph& whole, const Tensor& codes);

}  // namespace steelyard::deploy
