// The members of a struct of options, each named once: what files, recipes and messages call it.
//
//   struct Pool2dGeometry {
//     std::array<std::int64_t, 2> kernel{2, 2};
//     static constexpr auto fields() { return std::tuple(field("kernel", &Pool2dGeometry::kernel));
//     }
//   };
#pragma once

#include <tuple>
#include <utility>

namespace steelyard {

// `get(options)` is the member.
template <typename Get>
struct Field {
  const char* name;
  Get get;
  // Left out of files where it is as in a new object; files of before it was there lack it.
  bool optional = false;
};

template <typename S, typename T>
constexpr auto field(const char* name, T S::*member, bool optional = false) {
  const auto get = [member](auto& options) -> auto& { return options.*member; };
  return Field<decltype(get)>{name, get, optional};
}

// Fields of a member that is a struct of options itself, as the outer struct's.
template <typename S, typename T, typename Fields>
constexpr auto fields_within(T S::*member, const Fields& fields) {
  return std::apply(
      [member](const auto&... inner) {
        const auto through = [member](const auto& of) {
          const auto get = [ member, of ](auto& options) -> auto& {
            return of.get(options.*member);
          };
          return Field<decltype(get)>{of.name, get, of.optional};
        };
        return std::tuple(through(inner)...);
      },
      fields);
}
template <typename S, typename T>
constexpr auto fields_within(T S::*member) {
  return fields_within(member, T::fields());
}

// The table of S: S::fields(), or a specialization for a struct that has none.
template <typename S>
constexpr auto fields_of() {
  return S::fields();
}

// f(field) for each field of S, in their order.
template <typename S, typename F>
constexpr void for_each_field(const F& f) {
  std::apply([&f](const auto&... each) { (f(each), ...); }, fields_of<S>());
}

}  // namespace steelyard
