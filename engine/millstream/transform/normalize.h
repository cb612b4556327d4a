#pragma once

#include <string>

#include "millstream/transform/transform.h"

namespace millstream {

/// A field as another dtype and, for floats, times `scale` plus `offset`. Each step is
/// rounded to the dtype, as XLA does it one operation at a time.
class Normalize final : public Transform {
 public:
  /// Throws `ArgumentError` where a scale or an offset is asked of a dtype that is not
  /// a float.
  Normalize(std::string field, DType dtype, double scale = 1, double offset = 0);

  std::string str() const override;
  StageKind kind() const noexcept override { return StageKind::kNormalize; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override;
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  bool scales() const noexcept { return scale_ != 1 || offset_ != 0; }

  std::string field_;
  DType dtype_;
  double scale_;
  double offset_;
};

}  // namespace millstream
