// A header that an installed one must neither hide nor find.
#pragma once

namespace consumer {
inline constexpr int kFeatures = 4;
}  // namespace consumer
