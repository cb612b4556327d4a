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
  Flow flow(const Schema& input) const override;
  void apply(const Flow& flow, std::span<const Column> input,
             std::span<const Column> output, std::int64_t rows, const Samples& samples,
             Memory& memory) const override;

 private:
  bool scales() const noexcept { return scale_ != 1 || offset_ != 0; }

  std::string field_;
  DType dtype_;
  double scale_;
  double offset_;
};

}  // namespace millstream
