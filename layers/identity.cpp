#include "steelyard/layers/identity.h"

namespace steelyard {

Variable Identity::forward(const Variable& x, ForwardContext&) { return x; }

}  // namespace steelyard
