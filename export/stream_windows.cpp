#include "steelyard/export/stream_windows.h"

#include <algorithm>

#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kWindowsAtOnce = 64;  // in memory

std::size_t place_of(std::int64_t i) { return static_cast<std::size_t>(i); }

// A dimension of samples: `rows` runs of `inner` elements for each of its positions.
struct FrameLayout {
  std::int64_t rows = 1, inner = 1;
  FrameLayout(const Shape& shape, std::int64_t axis) {
    for (std::int64_t d = 0; d < axis; ++d) rows *= shape[place_of(d)];
    for (std::int64_t d = axis + 1; d < std::ssize(shape); ++d) inner *= shape[place_of(d)];
  }
};

// The values of the windows that end with calls `first` to `last`, the latter left out.
Tensor windows_of(const Stream& stream, const Graph& whole, const Tensor& codes, std::int64_t first,
                  std::int64_t last) {
  Shape shape = whole.values[whole.input].shape;
  const FrameLayout layout(shape, stream.axis);
  shape.insert(shape.begin(), last - first);
  const Tensor windows = Tensor::empty(shape);
  const Quantization& q = *whole.values[input_codes(whole)].quantization;
  const std::int64_t window = stream.window_frames, step = stream.frames;
  const std::int8_t* from = codes.data<std::int8_t>();
  float* to = windows.data<float>();
  for (std::int64_t call = first; call < last; ++call) {
    for (std::int64_t row = 0; row < layout.rows; ++row) {
      for (std::int64_t position = 0; position < window; ++position) {
        const std::int64_t frame = (call + 1) * step - window + position;  // of the sequence
        const std::int64_t at =
            ((frame / step * layout.rows + row) * step + frame % step) * layout.inner;
        for (std::int64_t i = 0; i < layout.inner; ++i) {
          *to++ = frame < 0 ? 0.0F : static_cast<float>(from[at + i] - q.zero_point) * q.scale;
        }
      }
    }
  }
  return windows;
}

}  // namespace

Tensor noise_of_calls(const Stream& stream, std::int64_t calls, std::uint32_t seed) {
  Shape shape = stream.graph.values[input_codes(stream.graph)].shape;
  shape.insert(shape.begin(), calls);
  const Tensor codes = Tensor::empty(shape, DType::kI8);
  for (std::int8_t& code : codes.span<std::int8_t>()) {
    seed = seed * 1664525U + 1013904223U;
    code = static_cast<std::int8_t>(static_cast<std::int32_t>(seed >> 24) - 128);
  }
  return codes;
}

Tensor stream_outputs(const Stream& stream, const Graph& whole, const Tensor& codes) {
  const std::int64_t calls = codes.dim(0);
  Shape shape = stream.graph.values[stream.graph.output].shape;
  const Shape& window_output = whole.values[whole.output].shape;
  // Of an output along time, its last positions.
  const auto differing = std::mismatch(shape.begin(), shape.end(), window_output.begin());
  const auto axis = std::min<std::int64_t>(differing.first - shape.begin(), std::ssize(shape) - 1);
  const FrameLayout layout(shape, axis);
  const std::int64_t row = layout.inner * shape[place_of(axis)];
  const std::int64_t window_row = layout.inner * window_output[place_of(axis)];
  shape.insert(shape.begin(), calls);
  const Tensor outputs = Tensor::empty(shape, DType::kI8);
  std::int8_t* to = outputs.data<std::int8_t>();
  const Interpreter interpreter(whole);
  for (std::int64_t first = 0; first < calls; first += kWindowsAtOnce) {
    const std::int64_t last = std::min(calls, first + kWindowsAtOnce);
    const Tensor found =
        interpreter.run_all(windows_of(stream, whole, codes, first, last))[whole.output];
    const std::int8_t* from = found.data<std::int8_t>();
    for (std::int64_t i = 0; i < (last - first) * layout.rows; ++i) {
      from += window_row;
      to = std::copy(from - row, from, to);
    }
  }
  return outputs;
}

}  // namespace steelyard::deploy
