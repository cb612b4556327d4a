#pragma once

#include <cstdint>

#include "millstream/source/combine.h"

namespace millstream {

/// The windows over the samples of a source: window i has the samples
/// [i * stride, i * stride + length), and each field has the shape [length, ...].
///
/// Where the samples of a field lie side by side in memory or in a mapped file, a
/// window is read like one sample of an array: it is copied once, or not at all if the
/// caller takes pointers. All other windows are gathered sample by sample, such as
/// those that cross the border of two files. Throws `ArgumentError` unless `length` and
/// `stride` are positive and the source has at least `length` samples.
SharedSource windows(const SharedSource& source, std::int64_t length,
                     std::int64_t stride = 1);

/// The windows that begin at the samples [first, first + count). Each read gathers all
/// samples of its windows with one read of the source.
class GatheredWindows final : public Wrapping {
 public:
  /// Throws `ArgumentError` unless there is at least one window, `length` is positive
  /// and all windows are within the source.
  GatheredWindows(SharedSource source, std::int64_t length, std::int64_t first,
                  std::int64_t count);

  std::int64_t size() const noexcept override { return count_; }
  const Schema& schema() const noexcept override { return schema_; }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t> indices) const noexcept override;

 private:
  /// Writes the samples of each window to `samples`, window after window.
  void expand(std::span<const std::int64_t> indices,
              std::span<std::int64_t> samples) const noexcept;

  std::int64_t length_;
  std::int64_t first_;
  std::int64_t count_;
  Schema schema_;
};

}  // namespace millstream
