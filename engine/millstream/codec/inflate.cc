#include "millstream/codec/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::size_t kMost = std::numeric_limits<uInt>::max();

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
    Inflater inflater(packed_.format, packed_.name);
    for (bool ended = false; !ended;) {
      if (in_.empty()) fill();
      const Inflater::Step step = inflater.step(in_, out_, at_);
      if (!step.ended && step.consumed == 0 && step.produced == 0) {
        fail("more deflated data", "the end");
      }
      in_ = in_.subspan(step.consumed);
      at_ += static_cast<std::int64_t>(step.consumed);
      ended = step.ended;
      const auto out = std::span<const std::byte>(out_).first(step.produced);
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

Inflater::Inflater(Deflated format, std::string name) : name_(std::move(name)) {
  auto stream = std::make_unique<z_stream>();
  const int window = format == Deflated::kGzip ? MAX_WBITS + 16 : -MAX_WBITS;
  if (inflateInit2(stream.get(), window) != Z_OK) throw std::bad_alloc();
  stream_.reset(stream.release());
}

void Inflater::End::operator()(z_stream_s* stream) const noexcept {
  inflateEnd(stream);
  delete stream;
}

Inflater::Step Inflater::step(std::span<const std::byte> in, std::span<std::byte> out,
                              std::int64_t offset) {
  in = in.first(std::min(in.size(), kMost));
  out = out.first(std::min(out.size(), kMost));
  // zlib's interface is older than const; it does not write its input.
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream_->avail_in = static_cast<uInt>(in.size());
  stream_->next_out = reinterpret_cast<Bytef*>(out.data());
  stream_->avail_out = static_cast<uInt>(out.size());
  const int code = ::inflate(stream_.get(), Z_NO_FLUSH);
  Step step;
  step.consumed = in.size() - stream_->avail_in;
  step.produced = out.size() - stream_->avail_out;
  step.ended = code == Z_STREAM_END;
  if (code == Z_MEM_ERROR) throw std::bad_alloc();
  if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
    const char* found = stream_->msg != nullptr ? stream_->msg : "a preset dictionary";
    throw DataError(text(name_, ": offset ",
                         offset + static_cast<std::int64_t>(step.consumed),
                         ": expected deflated data, found ", found));
  }
  return step;
}

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
