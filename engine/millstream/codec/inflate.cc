#include "millstream/codec/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>

#include "millstream/core/error.h"

namespace millstream {
namespace {

struct End {
  void operator()(z_stream* stream) const noexcept { inflateEnd(stream); }
};

class Inflation {
 public:
  Inflation(const Packed& packed, const ReadBytes& read, const Sink& sink,
            std::int64_t piece)
      : packed_(packed),
        read_(read),
        sink_(sink),
        piece_(piece),
        at_(packed.begin),
        out_(static_cast<std::size_t>(piece)) {}

  Contents run() {
    do {
      member();
    } while (packed_.format == Deflated::kGzip && another());
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
    z_stream stream = {};
    const int window = packed_.format == Deflated::kGzip ? MAX_WBITS + 16 : -MAX_WBITS;
    if (inflateInit2(&stream, window) != Z_OK) throw std::bad_alloc();
    const std::unique_ptr<z_stream, End> end(&stream);
    for (int code = Z_OK; code != Z_STREAM_END;) {
      if (in_.empty()) fill();
      // zlib's interface is older than const; it does not write its input.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in_.data()));
      stream.avail_in = static_cast<uInt>(in_.size());
      stream.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream.avail_out = static_cast<uInt>(out_.size());
      code = ::inflate(&stream, Z_NO_FLUSH);
      at_ += static_cast<std::int64_t>(in_.size() - stream.avail_in);
      in_ = in_.last(stream.avail_in);
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code == Z_BUF_ERROR) fail("more deflated data", "the end");
      if (code != Z_OK && code != Z_STREAM_END) {
        fail("deflated data",
             stream.msg != nullptr ? stream.msg : "a preset dictionary");
      }
      const auto out =
          std::span<const std::byte>(out_).first(out_.size() - stream.avail_out);
      made_.size += static_cast<std::int64_t>(out.size());
      made_.crc = crc32_of(out, made_.crc);
      if (packed_.size && made_.size > *packed_.size) {
        fail(text(*packed_.size, " bytes when inflated"), "more");
      }
      sink_(out);
    }
  }

  /// gzip members may follow each other, and zeros may pad the last.
  bool another() {
    if (in_.size() < 2) fill();
    if (is_gzip(in_)) return true;
    while (!in_.empty()) {
      const auto other = std::ranges::find_if(
          in_, [](std::byte byte) { return byte != std::byte{0}; });
      at_ += other - in_.begin();
      if (other != in_.end()) fail("the end of the file", "other bytes after it");
      in_ = {};
      fill();
    }
    return false;
  }

  void fill() {
    buffer_ = read_(at_, std::min(piece_, packed_.end - at_));
    in_ = buffer_;
  }

  template <typename Expected, typename Found>
  [[noreturn]] void fail(const Expected& expected, const Found& found) const {
    throw DataError(text(packed_.name, ": offset ", at_, ": expected ", expected,
                         ", found ", found));
  }

  const Packed& packed_;
  const ReadBytes& read_;
  const Sink& sink_;
  std::int64_t piece_;
  std::int64_t at_;  // of the next byte to inflate
  std::vector<std::byte> buffer_;
  std::span<const std::byte> in_;
  std::vector<std::byte> out_;
  Contents made_;
};

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc) {
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Contents inflate_all(const Packed& packed, const ReadBytes& read, const Sink& sink,
                     std::int64_t piece) {
  return Inflation(packed, read, sink, piece).run();
}

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} &&
         bytes[1] == std::byte{0x8B};
}

}  // namespace millstream
