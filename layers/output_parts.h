// Several outputs of a network.
#pragma once

#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// The values of several outputs one after another in a row for each sample: output_parts().
class OutputParts : public JoinModule {
 public:
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "OutputParts"; }
};

}  // namespace steelyard
