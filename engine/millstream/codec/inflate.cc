#include "millstream/codec/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "millstream/core/error.h"

namespace millstream {
namespace {

class Inflation {
 public:
  Inflation(const DeflatedRange& packed, const ReadBytes& read, const Sink& sink,
            std::int64_t piece)
      : packed_(packed),
        read_(read),
        sink_(sink),
        piece_(piece),
        at_(packed.begin),
        out_(static_cast<std::size_t>(piece)) {
    const int window = packed.format == Deflated::kGzip ? MAX_WBITS + 16 : -MAX_WBITS;
    if (inflateInit2(&stream_, window) != Z_OK) throw std::bad_alloc();
  }
  ~Inflation() { inflateEnd(&stream_); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;

  Contents run() {
    member();
    while (packed_.format == Deflated::kGzip && another()) {
      inflateReset(&stream_);
      member();
    }
    if (packed_.size && *packed_.size != made_.size) {
      fail(text(*packed_.size, " bytes when inflated"), made_.size);
    }
    if (packed_.crc && *packed_.crc != made_.crc) {
      fail(text("CRC ", *packed_.crc), made_.crc);
    }
    return made_;
  }

 private:
  void member() {
    for (int code = Z_OK; code != Z_STREAM_END;) {
      if (in_.empty()) fill();
      // zlib does not write to its input, but its interface has no const.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in_.data()));
      stream_.avail_in = static_cast<uInt>(in_.size());
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      code = ::inflate(&stream_, Z_NO_FLUSH);
      consume(in_.size() - stream_.avail_in);
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code == Z_BUF_ERROR) fail("more deflated data", "the end");
      if (code != Z_OK && code != Z_STREAM_END) {
        fail("deflated data",
             stream_.msg != nullptr ? stream_.msg : "a preset dictionary");
      }
      const auto out =
          std::span<const std::byte>(out_).first(out_.size() - stream_.avail_out);
      made_.size += static_cast<std::int64_t>(out.size());
      made_.crc = crc32_of(out, made_.crc);
      if (packed_.size && made_.size > *packed_.size) {
        fail(text(*packed_.size, " bytes when inflated"), "more");
      }
      sink_(out);
    }
  }

  /// Whether another gzip member follows. Zeros may pad the last member.
  bool another() {
    if (in_.size() < 2) fill();
    if (is_gzip(in_)) return true;
    for (; !in_.empty(); fill()) {
      const auto other = std::ranges::find_if(
          in_, [](std::byte byte) { return byte != std::byte{0}; });
      consume(static_cast<std::size_t>(other - in_.begin()));
      if (!in_.empty())
        fail("the end of the file after the last gzip member", "other bytes");
    }
    return false;
  }

  void consume(std::size_t count) {
    in_ = in_.subspan(count);
    at_ += static_cast<std::int64_t>(count);
  }

  void fill() {
    buffer_ = read_(at_, std::min(piece_, packed_.end - at_));
    in_ = buffer_;
  }

  template <typename Expected, typename Found>
  [[noreturn]] void fail(const Expected& expected, const Found& found) const {
    throw DataError({.file = packed_.name,
                     .offset = at_,
                     .expected = text(expected),
                     .found = text(found)});
  }

  const DeflatedRange& packed_;
  const ReadBytes& read_;
  const Sink& sink_;
  std::int64_t piece_;
  std::int64_t at_;  // offset of the next byte to inflate
  std::vector<std::byte> buffer_;
  std::span<const std::byte> in_;
  std::vector<std::byte> out_;
  Contents made_;
  z_stream stream_ = {};
};

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc) {
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Contents inflate_all(const DeflatedRange& packed, const ReadBytes& read,
                     const Sink& sink, std::int64_t piece) {
  return Inflation(packed, read, sink, piece).run();
}

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} &&
         bytes[1] == std::byte{0x8B};
}

}  // namespace millstream
