#include <algorithm>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/kernels/integer_product/pair_sums.h"
#include "steelyard/kernels/integer_product/quad_sums.h"
#include "steelyard/kernels/integer_product/tile_sums.h"

namespace steelyard::kernels {
namespace {

template <class Sums>
constexpr std::int64_t kPanelColumns = 2 * Sums::kLanes;
template <class Sums>
constexpr std::int64_t kBlockCodes = kGgmlBlock* kPanelColumns<Sums>;

// What is added to codes of inputs where operands are unsigned.
template <class Sums>
constexpr std::int32_t kInputOffset = std::is_unsigned_v<typename Sums::Operand> ? 128 : 0;

// Codes, with the offset, and scales, a block after the other.
template <class Sums>
struct InputPanel {
  std::vector<typename Sums::Operand> codes;  // [rows, terms]
  std::vector<float> scales;                  // [rows, blocks]
};

template <class Sums>
InputPanel<Sums> unpacked_inputs(std::int64_t rows, std::int64_t terms,
                                 const std::uint8_t* inputs) {
  using Operand = typename Sums::Operand;
  const std::int64_t blocks = rows * terms / kGgmlBlock;
  InputPanel<Sums> panel{std::vector<Operand>(blocks * kGgmlBlock), std::vector<float>(blocks)};
  parallel_for(blocks, 128, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::uint8_t* block = inputs + b * InputBlocks::kBytes;
      panel.scales[b] = InputBlocks::scale_of(block);
      for (int j = 0; j < kGgmlBlock; ++j) {
        panel.codes[b * kGgmlBlock + j] =
            static_cast<Operand>(InputBlocks::code(block, j) + kInputOffset<Sums>);
      }
    }
  });
  return panel;
}

// The weights of some columns, as tiles of sums take them: [blocks, 32 / kTogether, columns,
// kTogether]; their scales and where their sums begin, so that the offset of inputs goes: [blocks,
// columns]. Columns that are not there are 0.
template <class Sums>
struct WeightPanel {
  explicit WeightPanel(std::int64_t blocks)
      : codes(blocks * kBlockCodes<Sums>),
        scales(blocks * kPanelColumns<Sums>),
        begins(blocks * kPanelColumns<Sums>) {}

  std::vector<typename Sums::Weight> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> begins;

  template <class Format>
  void unpack(const BlockProduct<Format>& k, std::int64_t first_column) {
    constexpr int kParts = Format::kElements / kGgmlBlock;
    constexpr std::int64_t kColumns = kPanelColumns<Sums>, kTogether = Sums::kTogether;
    const std::int64_t columns = std::min(kColumns, k.columns - first_column);
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::uint8_t* block = k.weights + (first_column + c) * k.weight_bytes();
      for (std::int64_t b = 0; b < k.terms / kGgmlBlock; ++b) {
        const int first = static_cast<int>(b % kParts) * kGgmlBlock;
        scales[b * kColumns + c] = Format::scale_of(block);
        typename Sums::Weight* to = codes.data() + b * kBlockCodes<Sums> + kTogether * c;
        typename Sums::Weight of_block[kGgmlBlock];
        std::int32_t sum = 0;
        for (int j = 0; j < kGgmlBlock; ++j) {
          const int code = Format::code(block, first + j);
          of_block[j] = static_cast<typename Sums::Weight>(code);
          sum += code;
        }
        for (int j = 0; j < kGgmlBlock; j += kTogether) {
          std::copy_n(of_block + j, kTogether, to + j * kColumns);
        }
        begins[b * kColumns + c] = -kInputOffset<Sums> * sum;
        if (b % kParts == kParts - 1) block += Format::kBytes;
      }
    }
  }
};

// y of some rows and a panel's columns.
template <class Sums, class Format>
void multiply_panel(const BlockProduct<Format>& k, const InputPanel<Sums>& inputs,
                    const WeightPanel<Sums>& weights, std::int64_t first_row,
                    std::int64_t first_column) {
  constexpr std::int64_t kRows = Sums::kRows, kColumns = kPanelColumns<Sums>;
  const std::int64_t blocks = k.terms / kGgmlBlock;
  const std::int64_t rows = std::min(kRows, k.rows - first_row);
  const typename Sums::Operand* row_codes[kRows];
  const float* row_scales[kRows];
  for (std::int64_t r = 0; r < kRows; ++r) {  // the last row in place of those behind it
    const std::int64_t row = first_row + std::min(r, rows - 1);
    row_codes[r] = inputs.codes.data() + row * k.terms;
    row_scales[r] = inputs.scales.data() + row * blocks;
  }
  float sums[kRows * kColumns] = {};
  std::int32_t products[kRows * kColumns];
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kGgmlBlock;
    const float* const scales = weights.scales.data() + b * kColumns;
    sum_tile<Sums, 2>(row_codes, {&begin, 1}, kGgmlBlock,
                      weights.codes.data() + b * kBlockCodes<Sums>,
                      weights.begins.data() + b * kColumns, false, products, kColumns);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float input_scale = row_scales[r][b];
#pragma omp simd
      for (std::int64_t c = 0; c < kColumns; ++c) {
        sums[r * kColumns + c] +=
            input_scale * scales[c] * static_cast<float>(products[r * kColumns + c]);
      }
    }
  }
  const std::int64_t columns = std::min(kColumns, k.columns - first_column);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(sums + r * kColumns, columns, k.y + (first_row + r) * k.columns + first_column);
  }
}

template <class Sums, class Format>
void multiply(const BlockProduct<Format>& k) {
  const InputPanel<Sums> inputs = unpacked_inputs<Sums>(k.rows, k.terms, k.inputs);
  const std::int64_t panels = (k.columns + kPanelColumns<Sums> - 1) / kPanelColumns<Sums>;
  parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
    WeightPanel<Sums> weights(k.terms / kGgmlBlock);
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t first_column = panel * kPanelColumns<Sums>;
      weights.unpack(k, first_column);
      for (std::int64_t row = 0; row < k.rows; row += Sums::kRows) {
        multiply_panel(k, inputs, weights, row, first_column);
      }
    }
  });
}

}  // namespace

template <class Format>
void compute(const BlockProduct<Format>& k) {
  if (k.rows == 0 || k.columns == 0) return;
#if defined(__AVX2__)
  if (QuadSums::usable()) return multiply<QuadSums>(k);
#endif
  multiply<PairSums>(k);
}

template struct CpuKernels<GgmlBlocksKernels>;

}  // namespace steelyard::kernels
