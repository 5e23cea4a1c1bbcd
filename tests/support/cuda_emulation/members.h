// The members of an aggregate, whatever their names: what a kernel's struct points to.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace steelyard::emulation {

// Stands for a member of any type where members are counted.
struct AnyMember {
  template <typename T>
  operator T() const;  // NOLINT: that it converts is its purpose
};

inline constexpr std::size_t kMostMembers = 22;

// With braces around each, an array takes one initializer; without, one for every element.
template <typename T, std::size_t... index>
constexpr bool takes(std::index_sequence<index...>) {
  return requires { T{(static_cast<void>(index), AnyMember())...}; };
}
template <typename T, std::size_t... index>
constexpr bool takes_braced(std::index_sequence<index...>) {
  return requires { T{{(static_cast<void>(index), AnyMember())}...}; };
}

template <typename T, std::size_t count = 0>
constexpr std::size_t member_count() {
  if constexpr (count <= kMostMembers && takes<T>(std::make_index_sequence<count + 1>())) {
    return member_count<T, count + 1>();
  }
  return count;
}

// An aggregate without bases and arrays, whose members have no constructors.
template <typename T>
constexpr bool has_plain_members() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && std::is_standard_layout_v<T>) {
    constexpr std::size_t kCount = member_count<T>();
    return kCount > 0 && kCount <= kMostMembers &&
           takes_braced<T>(std::make_index_sequence<kCount>());
  }
  return false;
}

template <typename F, typename... Members>
void visit(const F& f, const Members&... members) {
  (f(members), ...);
}

// Calls f(member) for every member of a struct that has_plain_members().
template <typename T, typename F>
void each_member(const T& value, const F& f) {
  constexpr std::size_t kCount = member_count<T>();
  if constexpr (kCount == 1) {
    const auto& [a] = value;
    visit(f, a);
  } else if constexpr (kCount == 2) {
    const auto& [a, b] = value;
    visit(f, a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = value;
    visit(f, a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = value;
    visit(f, a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = value;
    visit(f, a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, g] = value;
    visit(f, a, b, c, d, e, g);
  } else if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, g, h] = value;
    visit(f, a, b, c, d, e, g, h);
  } else if constexpr (kCount == 8) {
    const auto& [a, b, c, d, e, g, h, i] = value;
    visit(f, a, b, c, d, e, g, h, i);
  } else if constexpr (kCount == 9) {
    const auto& [a, b, c, d, e, g, h, i, j] = value;
    visit(f, a, b, c, d, e, g, h, i, j);
  } else if constexpr (kCount == 10) {
    const auto& [a, b, c, d, e, g, h, i, j, k] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (kCount == 11) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l);
  } else if constexpr (kCount == 12) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m);
  } else if constexpr (kCount == 13) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n);
  } else if constexpr (kCount == 14) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o);
  } else if constexpr (kCount == 15) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (kCount == 16) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q);
  } else if constexpr (kCount == 17) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r);
  } else if constexpr (kCount == 18) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s);
  } else if constexpr (kCount == 19) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  } else if constexpr (kCount == 20) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  } else if constexpr (kCount == 21) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w);
  } else if constexpr (kCount == 22) {
    const auto& [a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x] = value;
    visit(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x);
  }
}

}  // namespace steelyard::emulation
