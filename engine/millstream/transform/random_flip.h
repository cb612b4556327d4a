#pragma once

#include <string>
#include <vector>

#include "millstream/transform/transform.h"

namespace millstream {

/// Flips a sample along one of its axes with a probability. One draw decides for all
/// fields of a sample.
class RandomFlip final : public Transform {
 public:
  /// `axis` is an axis of a sample; a negative axis counts from the last one. Throws
  /// `ArgumentError` if there are no fields, or if `probability` is not in [0, 1].
  RandomFlip(std::vector<std::string> fields, int axis = 1, double probability = 0.5);

  std::string str() const override;
  StageKind kind() const noexcept override { return StageKind::kRandomFlip; }
  bool draws() const noexcept override { return true; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  /// The axis as a number from 0 on for a value of this rank. Not checked.
  int axis_of(int rank) const noexcept { return axis_ < 0 ? axis_ + rank : axis_; }

  std::vector<std::string> fields_;
  int axis_;
  double probability_;
};

}  // namespace millstream
