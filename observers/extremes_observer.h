// Base class of observers that use only the extremes of each step.
#pragma once

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

class ExtremesObserver : public Observer {
 public:
  explicit ExtremesObserver(std::int64_t channels);

  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) final;
  Extremes range() const final { return range_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

  void begin_step() final;
  std::vector<Tensor> maxima() final { return {gathered_}; }
  void end_step() final;
  void abandon_step() final { gathered_ = Tensor(); }

 protected:
  // Moves the range by the extremes of a step, f32: lo > hi for a channel without finite values.
  virtual void update(const Extremes& step) = 0;
  // f32, lo > hi until something was seen.
  const Extremes& kept() const { return range_; }

 private:
  Extremes range_;
  Tensor gathered_;  // as kernels::GatherExtremes; undefined between steps
};

}  // namespace steelyard::observers
