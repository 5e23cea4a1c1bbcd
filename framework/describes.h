// The options of a recorded operation as data, which export reads.
#pragma once

namespace steelyard {

// A second base of a Function (or of what one is made of): `class Conv2dFunction : public Function,
// public Describes<Conv2dGeometry>`.
template <typename T>
class Describes {
 public:
  virtual T described() const = 0;

 protected:
  ~Describes() = default;
};

// The T of something that has one. Throws std::bad_cast for anything else.
template <typename T, typename Polymorphic>
T described(const Polymorphic& function) {
  return dynamic_cast<const Describes<T>&>(function).described();
}

}  // namespace steelyard
