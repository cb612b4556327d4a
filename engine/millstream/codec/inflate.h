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

/// Updates the CRC-32 of zip and gzip with `bytes`. `crc` is the previous value, or 0
/// at the beginning.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// A deflated range of the file called `name`, and the expected size and CRC of its
/// contents if they are known.
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

/// Returns `count` bytes at `offset` of the file.
using ReadBytes =
    std::function<std::vector<std::byte>(std::int64_t offset, std::int64_t count)>;
using Sink = std::function<void(std::span<const std::byte>)>;

/// Inflates the range, including all members of a gzip file, and passes the contents to
/// `sink` in pieces. Throws `DataError` if the data ends early, if size or CRC differ
/// from the expected ones, or if anything but zeros follows the last member.
Contents inflate_all(const DeflatedRange& packed, const ReadBytes& read,
                     const Sink& sink, std::int64_t piece = std::int64_t{1} << 18);

/// Whether `bytes` begin with the gzip magic number.
bool is_gzip(std::span<const std::byte> bytes) noexcept;

}  // namespace millstream
