#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {

/// Reads bytes of a file in order, never past their end. Every failure throws a
/// `DataError` with the file, the offset, what was expected and what was found. Does
/// not own the bytes.
class ByteReader {
 public:
  /// `bytes` begin at offset `base` of the file called `name`.
  ByteReader(std::span<const std::byte> bytes, FileName name, std::int64_t base = 0)
      : bytes_(bytes), name_(std::move(name)), base_(base) {}

  /// The offset of the next byte in the file.
  std::int64_t offset() const noexcept {
    return base_ + static_cast<std::int64_t>(at_);
  }
  std::int64_t left() const noexcept {
    return static_cast<std::int64_t>(bytes_.size() - at_);
  }

  /// Returns the next `count` bytes. `what` names them in errors.
  std::span<const std::byte> take(std::int64_t count, std::string_view what) {
    if (count < 0 || count > left()) {
      fail(offset(), millstream::text(count, " bytes of ", what),
           millstream::text(left(), " bytes"));
    }
    const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  std::string_view text(std::int64_t count, std::string_view what) {
    const auto taken = take(count, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  /// Returns the text before the next `end` and skips `end`.
  std::string_view text_until(char end, std::string_view what) {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                bytes_.size() - at_);
    const std::size_t length = rest.find(end);
    if (length == std::string_view::npos) {
      fail(offset(), millstream::text("the end of ", what), "the end of the bytes");
    }
    at_ += length + 1;
    return rest.substr(0, length);
  }

  template <std::unsigned_integral T>
  T little(std::string_view what) {
    T value = 0;
    int shift = 0;
    for (const std::byte byte : take(sizeof(T), what)) {
      value = static_cast<T>(value | static_cast<T>(byte) << shift);
      shift += 8;
    }
    return value;
  }

  template <std::unsigned_integral T>
  T big(std::string_view what) {
    T value = 0;
    for (const std::byte byte : take(sizeof(T), what)) {
      value = static_cast<T>(value << (sizeof(T) > 1 ? 8 : 0) | static_cast<T>(byte));
    }
    return value;
  }

  /// Reads a size or an offset: a little-endian uint64 below 2^62.
  std::int64_t size(std::string_view what) {
    const std::int64_t at = offset();
    const auto value = little<std::uint64_t>(what);
    if (value >> 62 != 0) fail(at, millstream::text(what, " below 2^62"), value);
    return static_cast<std::int64_t>(value);
  }

  template <typename Expected, typename Found>
  [[noreturn]] void fail(std::int64_t at, const Expected& expected,
                         const Found& found) const {
    throw DataError({.file = name_,
                     .offset = at,
                     .expected = millstream::text(expected),
                     .found = millstream::text(found)});
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  FileName name_;
  std::int64_t base_;
};

}  // namespace millstream
