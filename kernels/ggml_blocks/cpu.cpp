#include <array>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/kernels/integer_product/pair_sums.h"
#include "steelyard/kernels/integer_product/tile_sums.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kPanelColumns = 2 * PairSums::kLanes;
constexpr std::int64_t kPanelRows = PairSums::kRows;
constexpr std::int64_t kBlockCodes = kGgmlBlock * kPanelColumns;

// Codes as int16 and scales, a block after the other.
struct InputPanel {
  std::vector<std::int16_t> codes;  // [rows, terms]
  std::vector<float> scales;        // [rows, blocks]
};

InputPanel unpacked_inputs(std::int64_t rows, std::int64_t terms, const std::uint8_t* inputs) {
  const std::int64_t blocks = rows * terms / kGgmlBlock;
  InputPanel panel{std::vector<std::int16_t>(blocks * kGgmlBlock), std::vector<float>(blocks)};
  parallel_for(blocks, 128, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::uint8_t* block = inputs + b * InputBlocks::kBytes;
      panel.scales[b] = InputBlocks::scale_of(block);
      for (int j = 0; j < kGgmlBlock; ++j) {
        panel.codes[b * kGgmlBlock + j] = static_cast<std::int16_t>(InputBlocks::code(block, j));
      }
    }
  });
  return panel;
}

// The weights of some columns, as tiles of sums take them: [blocks, 32 / kTogether, columns,
// kTogether], and their scales [blocks, columns]. Columns that are not there are 0.
template <class Format>
void unpack_weights(const BlockProduct<Format>& k, std::int64_t first_column,
                    std::vector<std::int16_t>& codes, std::vector<float>& scales) {
  constexpr int kParts = Format::kElements / kGgmlBlock;
  constexpr std::int64_t kTogether = PairSums::kTogether;
  const std::int64_t columns = std::min(kPanelColumns, k.columns - first_column);
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::uint8_t* block = k.weights + (first_column + c) * k.weight_bytes();
    for (std::int64_t b = 0; b < k.terms / kGgmlBlock; ++b) {
      const int first = static_cast<int>(b % kParts) * kGgmlBlock;
      scales[b * kPanelColumns + c] = Format::scale_of(block);
      std::int16_t* to = codes.data() + b * kBlockCodes + kTogether * c;
      for (int j = 0; j < kGgmlBlock; ++j) {
        to[j / kTogether * kTogether * kPanelColumns + j % kTogether] =
            static_cast<std::int16_t>(Format::code(block, first + j));
      }
      if (b % kParts == kParts - 1) block += Format::kBytes;
    }
  }
}

// y of some rows and a panel's columns.
template <class Format>
void multiply_panel(const BlockProduct<Format>& k, const InputPanel& inputs,
                    const std::int16_t* codes, const float* scales, std::int64_t first_row,
                    std::int64_t first_column) {
  static constexpr std::array<std::int32_t, kPanelColumns> kZeros = {};
  const std::int64_t blocks = k.terms / kGgmlBlock;
  const std::int64_t rows = std::min(kPanelRows, k.rows - first_row);
  const std::int16_t* row_codes[kPanelRows];
  const float* row_scales[kPanelRows];
  for (std::int64_t r = 0; r < kPanelRows; ++r) {  // the last row in place of those behind it
    const std::int64_t row = first_row + std::min(r, rows - 1);
    row_codes[r] = inputs.codes.data() + row * k.terms;
    row_scales[r] = inputs.scales.data() + row * blocks;
  }
  float sums[kPanelRows * kPanelColumns] = {};
  std::int32_t products[kPanelRows * kPanelColumns];
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kGgmlBlock;
    sum_tile<PairSums, 2>(row_codes, {&begin, 1}, kGgmlBlock, codes + b * kBlockCodes,
                          kZeros.data(), false, products, kPanelColumns);
    for (std::int64_t r = 0; r < kPanelRows; ++r) {
      const float input_scale = row_scales[r][b];
#pragma omp simd
      for (std::int64_t c = 0; c < kPanelColumns; ++c) {
        sums[r * kPanelColumns + c] += input_scale * scales[b * kPanelColumns + c] *
                                       static_cast<float>(products[r * kPanelColumns + c]);
      }
    }
  }
  const std::int64_t columns = std::min(kPanelColumns, k.columns - first_column);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(sums + r * kPanelColumns, columns,
                k.y + (first_row + r) * k.columns + first_column);
  }
}

}  // namespace

template <class Format>
void compute(const BlockProduct<Format>& k) {
  if (k.rows == 0 || k.columns == 0) return;
  const InputPanel inputs = unpacked_inputs(k.rows, k.terms, k.inputs);
  const std::int64_t panels = (k.columns + kPanelColumns - 1) / kPanelColumns;
  parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int16_t> codes(k.terms / kGgmlBlock * kBlockCodes);
    std::vector<float> scales(k.terms / kGgmlBlock * kPanelColumns);
    for (std::int64_t panel = begin; panel < end; ++panel) {
      unpack_weights(k, panel * kPanelColumns, codes, scales);
      for (std::int64_t row = 0; row < k.rows; row += kPanelRows) {
        multiply_panel(k, inputs, codes.data(), scales.data(), row, panel * kPanelColumns);
      }
    }
  });
}

template struct CpuKernels<GgmlBlocksKernels>;

}  // namespace steelyard::kernels
