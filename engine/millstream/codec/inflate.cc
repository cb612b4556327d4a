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

std::vector<std::byte> inflated(std::span<const std::byte> in, Deflated format,
                                std::int64_t limit, const std::string& name) {
  std::vector<std::byte> all;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  std::size_t at = 0;
  do {
    Inflater inflater(format, name);
    for (bool ended = false; !ended;) {
      const auto offset = static_cast<std::int64_t>(at);
      const Inflater::Step step = inflater.step(in.subspan(at), piece, offset);
      at += step.consumed;
      ended = step.ended;
      if (!ended && step.consumed == 0 && step.produced == 0) {
        throw DataError(text(name, ": offset ", at,
                             ": expected more deflated data, found the end"));
      }
      if (step.produced > static_cast<std::size_t>(limit) - all.size()) {
        throw DataError(text(name, ": offset ", at, ": expected at most ", limit,
                             " bytes when inflated, found more"));
      }
      all.insert(all.end(), piece.begin(),
                 piece.begin() + static_cast<std::ptrdiff_t>(step.produced));
    }
  } while (format == Deflated::kGzip && is_gzip(in.subspan(at)));
  return all;
}

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} &&
         bytes[1] == std::byte{0x8B};
}

}  // namespace millstream
