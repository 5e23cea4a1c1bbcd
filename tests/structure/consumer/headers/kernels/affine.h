// A header that an installed one must neither hide nor find.
#pragma once

namespace consumer {
inline constexpr const char* kEnd = "\n";
}  // namespace consumer
