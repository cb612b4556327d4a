#include "millstream/source/unpack.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "millstream/codec/inflate.h"
#include "millstream/core/digest.h"
#include "millstream/core/error.h"
#include "millstream/io/file_writer.h"

namespace millstream {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;

/// A stretch of a file that is deflated, and what is known of its contents.
struct Packed {
  const File& file;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Deflated format = Deflated::kGzip;
  std::optional<std::int64_t> size;
  std::optional<std::uint32_t> crc;
};

/// A name in the cache that changes with the file that it was made from.
std::filesystem::path cached_name(const File& file, const std::string& member,
                                  const std::filesystem::path& stem,
                                  const std::filesystem::path& cache) {
  if (cache.empty()) {
    throw ArgumentError(text(file.path().string(),
                             ": is compressed, and there is no cache folder to "
                             "unpack it into"));
  }
  std::error_code code;
  const auto whole = std::filesystem::weakly_canonical(file.path(), code);
  Digest digest;
  digest.add(code ? file.path().string() : whole.string());
  digest.add(member).add(file.size()).add(file.changed());
  char key[17];
  std::snprintf(key, sizeof key, "%016llx",
                static_cast<unsigned long long>(digest.value()));
  return cache / text(stem.stem().string(), "-", key, stem.extension().string());
}

std::filesystem::path sum_of(const std::filesystem::path& path) {
  return path.string() + ".sum";
}

/// Whether the file is there, as long as it was when it was unpacked.
bool is_whole(const std::filesystem::path& path) {
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (code || !std::filesystem::is_regular_file(sum_of(path), code)) return false;
  const auto sum = File(sum_of(path)).bytes(0, 64);
  const auto* begin = reinterpret_cast<const char*>(sum.data());
  std::uintmax_t promised = 0;
  const auto read = std::from_chars(begin, begin + sum.size(), promised);
  return read.ec == std::errc{} && promised == size;
}

class Unpacking {
 public:
  Unpacking(const Packed& packed, const std::filesystem::path& to)
      : packed_(packed),
        name_(packed.file.path().string()),
        at_(packed.begin),
        to_(to),
        writer_(to),
        out_(static_cast<std::size_t>(kPiece)) {}

  void run() {
    do {
      member();
    } while (packed_.format == Deflated::kGzip && another());
    if (packed_.size && *packed_.size != writer_.size()) {
      fail(text(*packed_.size, " bytes when inflated"), writer_.size());
    }
    if (packed_.crc && *packed_.crc != crc_) fail(text("CRC ", *packed_.crc), crc_);
    writer_.commit();
    FileWriter sum(sum_of(to_));
    sum.write(text(writer_.size(), " ", crc_, "\n"));
    sum.commit();
  }

 private:
  void member() {
    Inflater inflater(packed_.format, name_);
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
      crc_ = crc32_of(out, crc_);
      writer_.write(out);
      if (packed_.size && writer_.size() > *packed_.size) {
        fail(text(*packed_.size, " bytes when inflated"), "more");
      }
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
    buffer_ = packed_.file.bytes(at_, std::min(kPiece, packed_.end - at_));
    in_ = buffer_;
  }

  template <typename Expected, typename Found>
  [[noreturn]] void fail(const Expected& expected, const Found& found) const {
    throw DataError(
        text(name_, ": offset ", at_, ": expected ", expected, ", found ", found));
  }

  const Packed& packed_;
  std::string name_;
  std::int64_t at_;  // of the next byte to inflate
  std::filesystem::path to_;
  FileWriter writer_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> in_;
  std::vector<std::byte> out_;
  std::uint32_t crc_ = 0;
};

}  // namespace

std::filesystem::path unpacked(const std::filesystem::path& path,
                               const std::filesystem::path& cache) {
  const File file(path);
  if (!is_gzip(file.bytes(0, 2))) return path;
  auto stem = path.filename();
  if (stem.extension() == ".gz" || stem.extension() == ".tgz") stem = stem.stem();
  auto to = cached_name(file, {}, stem, cache);
  if (!is_whole(to)) {
    const Packed packed = {file, 0, file.size(), Deflated::kGzip, {}, {}};
    Unpacking(packed, to).run();
  }
  return to;
}

std::filesystem::path unpacked_member(const File& zip, const ZipMember& member,
                                      std::int64_t offset,
                                      const std::filesystem::path& cache) {
  // Only the last part of a name from outside, so that it stays in the cache.
  const auto stem = std::filesystem::path(member.name).filename();
  auto to = cached_name(zip, member.name, stem, cache);
  if (!is_whole(to)) {
    const Packed packed = {
        zip, offset, offset + member.packed, Deflated::kRaw, member.size, member.crc};
    Unpacking(packed, to).run();
  }
  return to;
}

}  // namespace millstream
