// How near the outputs of a quantized network are to those of its float form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/recipes/searches/boxes.h"

namespace steelyard {

// One of the outputs of a network: where its values lie in those of a sample.
struct OutputSpan {
  std::string name;
  std::int64_t first = 0;
  std::int64_t size = 0;
  // Each so many values in turn are the scores of classes, of which the largest decides; 0: none
  // decides.
  std::int64_t classes = 0;
  // A linear layer gives them: numbers of a regression, where one of them is always the largest.
  bool may_be_numbers = false;
  // Whole numbers, each of which is a decision.
  bool decides_each = false;
  // Of each value, which of the modules that the output is joined of gives it; empty: there is one.
  // They differ in size: boxes in pixels beside scores below 1.
  std::vector<std::int32_t> sources = {};
  std::optional<DetectionHead> head = {};
};

// Those of an imported network: a Softmax and a linear layer that gives a vector give scores.
std::vector<OutputSpan> output_spans(const imports::GraphSpec& network);

struct OutputFidelity {
  std::string name = {};
  // Power of the float outputs by that of the differences, in dB; of values that several modules
  // give, those where it is least.
  double sqnr_db = 0;
  // The same if the differences had a standard error more of power: a few samples may be lucky.
  double sure_db = 0;
  // Percent of the decisions that are the same.
  std::optional<double> agreement = {};
  bool may_be_numbers = false;  // OutputSpan::may_be_numbers
  std::int64_t decisions = 0;
  bool boxes = false;             // they are the float model's boxes
  std::int64_t worst_sample = 0;  // with the least SQNR of its own
  double worst_sqnr_db = 0;

  bool operator==(const OutputFidelity&) const = default;
};

struct Fidelity {
  std::vector<OutputFidelity> outputs;

  // Of the output where it is least.
  double sqnr_db() const;
  std::optional<double> agreement() const;
  bool of_boxes() const;  // whether all decisions are boxes
};

// The outputs that are near enough to the float model's: of one that decides, so many percent of
// the decisions are the same; of another, where decisions are too few to tell, and where they may
// be numbers, the SQNR is as large with a standard error to spare.
struct FidelityGoal {
  double sqnr_db = 25;
  double agreement = 99;
  double boxes = 97;  // in its place where the decisions are boxes

  bool reached(const Fidelity& fidelity) const;
  // Whether there are enough decisions to tell.
  bool tells(const OutputFidelity& output) const;
  // A line that says why the SQNR of an output that decides counts; "" where it does not matter.
  std::string why_by_numbers(const OutputFidelity& output) const;
};

// Compares f32 [N, ...] of as many samples and values. Values that are not finite have an SQNR of
// -kMostDecibels.
Fidelity fidelity(const Tensor& in_float, const Tensor& quantized,
                  const std::vector<OutputSpan>& outputs);

}  // namespace steelyard
