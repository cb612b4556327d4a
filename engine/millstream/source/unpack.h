#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "millstream/codec/zip.h"
#include "millstream/io/file.h"

namespace millstream {

/// A function that returns the maximum size of an unpacked file, given its first
/// `kUnpackedHead` bytes. Throws `DataError` for an invalid header.
using MostBytes = std::function<std::int64_t(std::span<const std::byte> head)>;
inline constexpr std::int64_t kUnpackedHead = 8192;

/// Returns `path`, or, for a gzip file, the path of an unpacked copy in `cache`. The
/// first caller unpacks it to a temporary file, checks size and CRC, and renames it;
/// other callers wait. Unpacking stops if the contents exceed the size that `most`
/// returns. The file is unpacked again if it has changed or if the copy is damaged. The
/// CRC of a copy is checked again if the copy has a new time of change. Throws
/// `DataError` for damaged data, and `ArgumentError` if the file is compressed and
/// `cache` is empty.
std::filesystem::path unpacked(const std::filesystem::path& path,
                               const std::filesystem::path& cache,
                               const MostBytes& most = {});

/// The same for a deflated member of a zip file, whose data begins at `offset`.
std::filesystem::path unpacked_member(const File& zip, const ZipMember& member,
                                      std::int64_t offset,
                                      const std::filesystem::path& cache,
                                      const MostBytes& most = {});

}  // namespace millstream
