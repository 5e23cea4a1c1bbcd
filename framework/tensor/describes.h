// The options of a recorded operation as data, which export reads.
#pragma once

namespace steelyard {

// A second base class of a Function (or of a part of one) that has options of type T: `class
// Conv2dFunction : public Function, public Describes<Conv2dGeometry>`.
template <typename T>
class Describes {
 public:
  virtual T described() const = 0;

 protected:
  ~Describes() = default;
};

// The options of type T of an object. Throws std::bad_cast unless it derives from Describes<T>.
template <typename T, typename Polymorphic>
T described(const Polymorphic& function) {
  return dynamic_cast<const Describes<T>&>(function).described();
}

}  // namespace steelyard
