#include "kernels/dropout.h"

#include "kernels/cpu/map.h"

namespace steelyard::kernels {

void dropout_mask(std::int64_t bytes, double p, const MaskSource& source, const std::int64_t* step,
                  std::uint8_t* mask) {
  const MaskSource present = at_step(source, step);
  constexpr std::int64_t kGrain = 512;  // a byte costs two blocks of random numbers
  parallel_for(bytes, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) mask[i] = kept_bits(present, i, p);
  });
}

template <typename T>
void apply_dropout(std::int64_t n, const std::uint8_t* mask, T factor, const T* x, T* y) {
  map(n, [=](std::int64_t i) { y[i] = dropped(mask, i, factor, x[i]); });
}

template void apply_dropout(std::int64_t, const std::uint8_t*, float, const float*, float*);
template void apply_dropout(std::int64_t, const std::uint8_t*, double, const double*, double*);

}  // namespace steelyard::kernels
