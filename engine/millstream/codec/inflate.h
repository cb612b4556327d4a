#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

enum class Deflated : std::uint8_t { kRaw, kGzip };

/// The CRC-32 of zip and gzip, continued from `crc`, which begins as 0.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// A stretch of the file called `name` that is deflated, and what is known of its
/// contents.
struct DeflatedRange {
  FileName name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Deflated format = Deflated::kGzip;
  std::optional<std::int64_t> size = {};
  std::optional<std::uint32_t> crc = {};
};

struct Contents {
  std::int64_t size = 0;
  std::uint32_t crc = 0;
};

/// The bytes at an offset of the file, as many as asked for.
using ReadBytes =
    std::function<std::vector<std::byte>(std::int64_t offset, std::int64_t count)>;
using Sink = std::function<void(std::span<const std::byte>)>;

/// Inflates all of it, gzip members one after the other, and hands it to `sink` piece
/// by piece. Throws `DataError` where it ends early, is not of the size or the CRC that
/// is known of it, or where anything but zeros follows the last member.
Contents inflate_all(const DeflatedRange& packed, const ReadBytes& read,
                     const Sink& sink, std::int64_t piece = std::int64_t{1} << 18);

/// Whether bytes begin as gzip does.
bool is_gzip(std::span<const std::byte> bytes) noexcept;

}  // namespace millstream
