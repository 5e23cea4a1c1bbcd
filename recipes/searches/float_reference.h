// The float model that the steps of a search are compared with.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/recipes/searches/whole_file.h"

namespace steelyard {

class FloatReference {
 public:
  using Split = const Dataset& (Experiment::*)() const;

  // `whole`: of a graph that was cut; where the float file cannot be run, a note says so, and the
  // values at the cut are compared. All must outlive it.
  FloatReference(const Experiment& in_float, const std::optional<WholeFile>& whole,
                 const std::function<void(const std::string&)>& note);

  // Whether the outputs behind the cut are compared; compare() then reads a step's ONNX file.
  bool compares_whole() const { return whole_in_float_.has_value(); }
  // The samples of a split that steps are compared on.
  Dataset samples(Split split) const;
  // How near a step is, whose ONNX file that is. Of a graph that was cut: by the file's own
  // outputs, and where one of them cannot be compared by the values at the cut, too.
  Fidelity compare(Experiment& step, Split split, const std::filesystem::path& onnx);

 private:
  WholeOutputs whole_outputs(const std::filesystem::path& onnx, Split split) const;

  const Experiment& float_;
  const std::optional<WholeFile>& whole_;
  const std::function<void(const std::string&)>& note_;
  std::vector<OutputSpan> spans_;
  std::optional<WholeOutputs> whole_in_float_;  // on the validation samples
  bool has_told_ = false;                       // of outputs that cannot be compared
};

}  // namespace steelyard
