#include "millstream/source/unpack.h"

#include <charconv>
#include <cstdio>
#include <system_error>

#include "millstream/codec/inflate.h"
#include "millstream/core/digest.h"
#include "millstream/core/error.h"
#include "millstream/io/file_writer.h"

namespace millstream {
namespace {

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

/// Inflates a stretch of `file` into the cache.
void unpack(const File& file, const Packed& packed, const std::filesystem::path& to) {
  FileWriter writer(to);
  const Contents contents = inflate_all(
      packed,
      [&](std::int64_t offset, std::int64_t count) {
        return file.bytes(offset, count);
      },
      [&](std::span<const std::byte> piece) { writer.write(piece); });
  writer.commit();
  FileWriter sum(sum_of(to));
  sum.write(text(contents.size, " ", contents.crc, "\n"));
  sum.commit();
}

}  // namespace

std::filesystem::path unpacked(const std::filesystem::path& path,
                               const std::filesystem::path& cache) {
  const File file(path);
  if (!is_gzip(file.bytes(0, 2))) return path;
  auto stem = path.filename();
  if (stem.extension() == ".gz" || stem.extension() == ".tgz") stem = stem.stem();
  auto to = cached_name(file, {}, stem, cache);
  if (!is_whole(to)) {
    unpack(file, {.name = path.string(), .end = file.size()}, to);
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
    const Packed packed = {zip.path().string(), offset,      offset + member.packed,
                           Deflated::kRaw,      member.size, member.crc};
    unpack(zip, packed, to);
  }
  return to;
}

}  // namespace millstream
