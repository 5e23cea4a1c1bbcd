// Residual block. Source: He et al., "Deep Residual Learning", CVPR 2016.
#pragma once

#include <memory>

#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// y = activation(main(x) + shortcut(x)). The slots of `main` and of the sum have no name, so that
// what is below them is named as in torchvision ("layer1.0.conv1"); the others are "downsample" and
// "relu".
class Residual : public GraphModule {
 public:
  // A null shortcut or activation is an Identity; a null main, or one whose children take the names
  // of the other slots, throws std::invalid_argument.
  explicit Residual(std::shared_ptr<Module> main, std::shared_ptr<Module> shortcut = nullptr,
                    std::shared_ptr<Module> activation = nullptr);

  std::string type_name() const override { return "Residual"; }

  Slot& main() { return main_; }
  Slot& shortcut() { return shortcut_; }
  Slot& activation() { return activation_; }

 private:
  Slot& main_;
  Slot& shortcut_;
  Slot& activation_;
};

}  // namespace steelyard
