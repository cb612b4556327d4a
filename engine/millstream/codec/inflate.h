#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct z_stream_s;

namespace millstream {

enum class Deflated : std::uint8_t { kRaw, kGzip };

/// Inflates one deflate stream or gzip member, piece by piece. Belongs to one thread.
class Inflater {
 public:
  /// `name` is the file's, for messages.
  Inflater(Deflated format, std::string name);

  struct Step {
    std::size_t consumed = 0;
    std::size_t produced = 0;
    bool ended = false;  // the member is whole; gzip's length and CRC were right
  };

  /// Inflates from `in`, which stands at `offset` of the file, into `out`, as far as
  /// both reach. Throws `DataError` for what is not deflated data.
  Step step(std::span<const std::byte> in, std::span<std::byte> out,
            std::int64_t offset);

 private:
  struct End {
    void operator()(z_stream_s* stream) const noexcept;
  };
  std::unique_ptr<z_stream_s, End> stream_;
  std::string name_;
};

/// The CRC-32 of zip and gzip, continued from `crc`, which begins as 0.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// All that `in` holds, gzip members one after the other. Throws `DataError` where it
/// ends early or would be longer than `limit`.
std::vector<std::byte> inflated(std::span<const std::byte> in, Deflated format,
                                std::int64_t limit, const std::string& name);

/// Whether bytes begin as gzip does.
bool is_gzip(std::span<const std::byte> bytes) noexcept;

}  // namespace millstream
