#include "millstream/core/shape.h"

#include <algorithm>

#include "millstream/core/error.h"

namespace millstream {

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > kMaxRank) {
    throw ArgumentError(text("a value may have at most ", kMaxRank, " dimensions, not ",
                             extents.size()));
  }
  std::int64_t others = 1;  // the product of all extents other than 0
  for (const std::int64_t extent : extents) {
    if (extent < 0)
      throw ArgumentError(text("a dimension must be at least 0, not ", extent));
    if (__builtin_mul_overflow(others, std::max<std::int64_t>(extent, 1), &others) ||
        others > (std::int64_t{1} << 58)) {
      throw ArgumentError("a shape may have at most 2^58 elements");
    }
    elements_ = extent == 0 ? 0 : elements_ * extent;
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::string Shape::str() const {
  std::string out = "(";
  for (int axis = 0; axis < rank_; ++axis) {
    out += std::to_string((*this)[axis]);
    if (axis + 1 < rank_ || rank_ == 1) out += ",";
    if (axis + 1 < rank_) out += " ";
  }
  return out + ")";
}

}  // namespace millstream
