#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millstream/transform/transform.h"

namespace millstream {

/// Numbers for the first two axes of an image.
struct HeightWidth {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// Crops images, whose first two axes are height and width, at a random offset. One
/// draw decides for all fields of a sample. `padding` adds rows or columns of zeros on
/// each side before the crop.
class RandomCrop final : public Transform {
 public:
  /// Throws `ArgumentError` if there are no fields, if the size is not positive or if
  /// the padding is negative.
  RandomCrop(std::vector<std::string> fields, HeightWidth size,
             HeightWidth padding = {});

  std::string str() const override;
  StageKind kind() const noexcept override { return StageKind::kRandomCrop; }
  bool draws() const noexcept override { return true; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  /// The offsets of a crop: the numbers of possible ones for an image of this shape.
  HeightWidth choices(const Shape& image) const noexcept;

  std::vector<std::string> fields_;
  HeightWidth size_;
  HeightWidth padding_;
};

}  // namespace millstream
