#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "millstream/transform/arithmetic.h"
#include "millstream/transform/transform.h"

namespace millstream {

/// One number for all channels, or one number for each. Channels are the last axis.
using PerChannel = std::variant<double, std::vector<double>>;

/// Casts a field to another dtype. For floating dtypes it then computes
/// `(x * scale + offset - mean) / std`. Each operation is rounded to the dtype, so the
/// results equal those of separate XLA operations.
class Normalize final : public Transform {
 public:
  /// Throws `ArgumentError` if there is something to compute and `dtype` is not
  /// floating, or if `mean` and `std` have different numbers of entries.
  Normalize(std::string field, DType dtype, double scale = 1, double offset = 0,
            const PerChannel& mean = 0.0, const PerChannel& std = 1.0);

  std::string str() const override;
  StageKind kind() const noexcept override { return StageKind::kNormalize; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  template <typename T>
  Numbers<T> numbers() const;
  bool scales() const noexcept { return scale_ != 1 || offset_ != 0 || period_ != 0; }

  std::string field_;
  DType dtype_;
  double scale_;
  double offset_;
  std::string per_channel_;  // the argument with one entry per channel, or empty
  std::int64_t channels_;    // the number of its entries
  std::int64_t period_ = 0;  // 0 without a mean and a standard deviation
  // `period_ + kRepeated` values of `dtype_` each: the entries of all channels,
  // repeated, so that the inner loop is long enough to vectorize.
  std::vector<std::byte> mean_;
  std::vector<std::byte> std_;
};

}  // namespace millstream
