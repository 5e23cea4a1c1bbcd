#include "steelyard/layers/norms/rms_norm.h"

#include <stdexcept>

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/reductions/rms_norm.h"

namespace steelyard {
namespace {

const RmsNormOptions& checked_options(const RmsNormOptions& o) {
  if (o.features < 1 || !(o.eps > 0.0)) {
    throw std::invalid_argument("[RMSNorm] expected features >= 1 and eps > 0, got " +
                                std::to_string(o.features) + " and " + std::to_string(o.eps));
  }
  return o;
}

}  // namespace

RMSNorm::RMSNorm(const RmsNormOptions& options)
    : options_(checked_options(options)),
      weight_(register_parameter("weight", Tensor::full({options.features}, 1.0))) {}

Variable RMSNorm::forward(const Variable& x, ForwardContext&) {
  const std::int64_t width = x.shape().empty() ? 0 : x.dim(-1);
  if (width == options_.features || width == 0 || width % options_.features != 0) {
    return rms_norm(x, weight_, options_.eps);
  }
  Shape heads = x.shape();
  heads.back() = width / options_.features;
  heads.push_back(options_.features);
  return reshape(rms_norm(reshape(x, heads), weight_, options_.eps), x.shape());
}

std::string RMSNorm::description() const {
  return "RMSNorm(" + std::to_string(options_.features) + ")";
}

}  // namespace steelyard
