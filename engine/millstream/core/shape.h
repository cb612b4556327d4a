#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace millstream {

/// The extents of a value, at most `kMaxRank` of them, stored inline.
class Shape {
 public:
  static constexpr int kMaxRank = 12;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

  /// Throws `ArgumentError` for a negative extent, more than `kMaxRank` extents, or
  /// more than 2^58 elements. Extents of 0 count as 1 here, so every part of a valid
  /// shape is valid too.
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const noexcept {
    return extents_[static_cast<std::size_t>(axis)];
  }
  std::span<const std::int64_t> extents() const noexcept {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  std::int64_t elements() const noexcept { return elements_; }
  std::string str() const;

  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  std::int64_t elements_ = 1;
  int rank_ = 0;
};

}  // namespace millstream
