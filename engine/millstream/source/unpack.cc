#include "millstream/source/unpack.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "millstream/codec/inflate.h"
#include "millstream/core/characters.h"
#include "millstream/core/digest.h"
#include "millstream/core/error.h"
#include "millstream/io/file_writer.h"

namespace millstream {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;

constexpr std::size_t kStem = 64;  // maximum bytes of a cached name's stem

/// A gzip file ends with the CRC and the length of its contents.
constexpr std::int64_t kGzipTrailer = 8;

/// Makes a name from an archive safe to use in a file name.
std::string cleaned(std::string name) {
  name.resize(std::min(name.size(), kStem));
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) < ' ') c = '_';
  }
  return name;
}

/// The name of the unpacked copy in the cache. It changes whenever the file changes.
/// `what` names the packed data and its CRC, because another file may have the same
/// size and time.
std::filesystem::path cached_name(const File& file, const std::string& what,
                                  const std::filesystem::path& stem,
                                  const std::filesystem::path& cache) {
  if (cache.empty()) {
    throw ArgumentError({.file = file.path().string(),
                         .text = "is compressed, and there is no cache folder to "
                                 "unpack it into: set HOME or MILLSTREAM_CACHE, or "
                                 "pass cache_dir="});
  }
  std::error_code code;
  const auto whole = std::filesystem::weakly_canonical(file.path(), code);
  Digest digest;
  digest.add(code ? file.path().string() : whole.string());
  digest.add(what).add(file.size()).add(file.changed());
  char key[17];
  std::snprintf(key, sizeof key, "%016llx",
                static_cast<unsigned long long>(digest.value()));
  return cache / text(cleaned(stem.stem().string()), "-", key,
                      cleaned(stem.extension().string()));
}

std::filesystem::path sum_of(const std::filesystem::path& path) {
  return path.string() + ".sum";
}

/// Stores the size, CRC and time of change of an unpacked copy.
void write_sum(const std::filesystem::path& copy, const Contents& contents) {
  FileWriter sum(sum_of(copy), FileWriter::Mode::kExclusive);
  sum.write(text(contents.size, " ", contents.crc, " ", File(copy).changed(), "\n"));
  sum.commit();
}

/// Whether the copy exists and is undamaged. Reads the copy only if its time of change
/// differs from the stored one.
bool is_whole(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code) ||
      !std::filesystem::is_regular_file(sum_of(path), code)) {
    return false;
  }
  const auto sum = File(sum_of(path)).bytes(0, 64);
  std::istringstream numbers({reinterpret_cast<const char*>(sum.data()), sum.size()});
  Contents promised = {.size = -1};
  std::int64_t changed = -1;
  numbers >> promised.size >> promised.crc >> changed;
  const File copy(path);
  if (copy.size() != promised.size) return false;
  if (copy.changed() == changed) return true;
  std::uint32_t crc = 0;
  for (std::int64_t at = 0; at < copy.size(); at += kPiece) {
    crc = crc32_of(copy.bytes(at, kPiece), crc);
  }
  if (crc != promised.crc) return false;
  try {
    write_sum(path, promised);
  } catch (const IoError&) {
    // In a read-only cache, the copy is checked every time.
  }
  return true;
}

/// Inflates a range of `file` into the cache, unless another thread or process has done
/// so in the meantime.
void unpack(const File& file, const DeflatedRange& packed,
            const std::filesystem::path& to, const MostBytes& most_bytes) {
  FileWriter writer(to, FileWriter::Mode::kExclusive);
  if (is_whole(to)) return;
  std::vector<std::byte> head;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto write = [&](std::span<const std::byte> piece) {
    const auto missing = static_cast<std::size_t>(kUnpackedHead) - head.size();
    if (most_bytes && missing > 0) {
      const auto more = piece.first(std::min(missing, piece.size()));
      head.insert(head.end(), more.begin(), more.end());
      if (more.size() == missing) most = most_bytes(head);
    }
    writer.write(piece);
    if (writer.size() > most) {
      throw DataError({.file = packed.name,
                       .offset = packed.begin,
                       .expected = text(most, " bytes when inflated"),
                       .found = "more"});
    }
  };
  const Contents contents = inflate_all(
      packed,
      [&](std::int64_t offset, std::int64_t count) {
        return file.bytes(offset, count);
      },
      write);
  writer.commit();
  write_sum(to, contents);
}

}  // namespace

std::filesystem::path unpacked(const std::filesystem::path& path,
                               const std::filesystem::path& cache,
                               const MostBytes& most) {
  const File file(path);
  if (!is_gzip(file.bytes(0, 2))) return path;
  auto stem = path.filename();
  if (stem.extension() == ".gz" || stem.extension() == ".tgz") stem = stem.stem();
  const auto trailer =
      file.bytes(std::max(file.size() - kGzipTrailer, std::int64_t{0}), kGzipTrailer);
  const std::string sums(reinterpret_cast<const char*>(trailer.data()), trailer.size());
  auto to = cached_name(file, sums, stem, cache);
  if (!is_whole(to)) {
    unpack(file, {.name = path.string(), .end = file.size()}, to, most);
  }
  return to;
}

std::filesystem::path unpacked_member(const File& zip, const ZipMember& member,
                                      std::int64_t offset,
                                      const std::filesystem::path& cache,
                                      const MostBytes& most) {
  // Use only the last component of the name, so that the copy stays in the cache
  // folder.
  const auto stem = std::filesystem::path(member.name).filename();
  auto to = cached_name(zip, text(member.name, " ", member.crc), stem, cache);
  if (!is_whole(to)) {
    const DeflatedRange packed = {FileName(zip.path().string(), member.name),
                                  offset,
                                  offset + member.packed,
                                  Deflated::kRaw,
                                  member.size,
                                  member.crc};
    unpack(zip, packed, to, most);
  }
  return to;
}

}  // namespace millstream
