// Runs that lose what they had learned while every loss stays finite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/train/constant_outputs.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/trainer_callback.h"

namespace steelyard {

// What the message of TrainingCollapsed ends in.
inline constexpr std::string_view kStoppedByCollapse = " (on_collapse: stop)";

// The run lost what it had learned, in the epoch that the message names. The epoch is saved, and
// the run can go on from there.
class TrainingCollapsed : public TrainingDiverged {
 public:
  using TrainingDiverged::TrainingDiverged;
};

// Compares each epoch with those before it and with a model that says nothing: whose outputs are
// constant (constant_outputs.h), or that gives every sample the most frequent class, or no text. An
// epoch has lost what the run knew where
//   - its validation top-1 is no better than that class, within two standard deviations, after an
//     epoch that was better by ten of them and by ten points;
//   - its character error rate is 99 % or more, after an epoch with at most 80 %;
//   - its training loss has risen by three quarters of the way back to that of constant outputs,
//     after an epoch with at most four fifths of that;
//   - the model began with trained weights and is still no better than constant outputs, that class
//     and no text after 200 steps and, without a validation split, one epoch.
class CollapseWatch {
 public:
  // Of the loss that is trained on the training set, and of the one that `validation`, which may be
  // empty, is measured by.
  CollapseWatch(ConstantOutputs training, const ConstantOutputs& validation_constant,
                const Dataset& validation);

  // What the epoch has lost, for people, or "". `trained`: the model began with trained weights.
  std::string after(const EpochReport& report, bool trained);
  // A scheduled change makes another model: its epochs are not compared with those before.
  void forget() { known_ = {}; }

  // What was best so far, in a checkpoint's metadata.
  void save(TensorFileMetadata& metadata) const;
  // Checkpoints of earlier versions have none of it. Throws InputError for what is no number.
  void restore(const TensorFileMetadata& metadata, const std::string& source);

 private:
  struct Known {
    std::optional<double> train_loss;  // the least
    std::optional<double> top1;        // the highest
    std::optional<double> cer;         // the least
  };
  std::string lost(const EpochReport& report, bool trained) const;
  std::string lost_predictions(const Metrics& validation) const;
  // Whether the predictions are better than those of a model that says nothing.
  bool says_something(const Metrics& validation) const;
  bool at_chance(double top1) const { return top1 <= chance_ + 2 * deviation_; }

  ConstantOutputs training_;
  double validation_loss_;  // of constant outputs
  double chance_ = 0;       // percent: top-1 of the most frequent class
  double deviation_ = 0;    // of what so many samples measure there
  Known known_;
};

}  // namespace steelyard
