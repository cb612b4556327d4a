#pragma once

#include <string>

#include "millstream/transform/transform.h"

namespace millstream {

/// Casts a field to another dtype. For floating dtypes it then multiplies by `scale`
/// and adds `offset`. Each operation is rounded to the dtype, so the results equal
/// those of separate XLA operations.
class Normalize final : public Transform {
 public:
  /// Throws `ArgumentError` if there is a scale or an offset and `dtype` is not
  /// floating.
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
