#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "millstream/codec/zip.h"
#include "millstream/io/file.h"

namespace millstream {

/// The greatest size of a file, by its first `kUnpackedHead` bytes. Throws `DataError`
/// for an invalid header.
using MostBytes = std::function<std::int64_t(std::span<const std::byte> head)>;
inline constexpr std::int64_t kUnpackedHead = 8192;

/// `path` itself, or where it is gzipped a file in `cache` that holds what it holds,
/// made by the first who asks while others wait: unpacked to a temporary file and
/// renamed, its length and CRC checked. Unpacking ends where the contents exceed
/// `most`. A file that has changed since is unpacked anew, and so is a copy that was
/// damaged since: one whose time of change differs has its CRC checked again. Throws
/// `DataError` for damaged bytes, `ArgumentError` if it is gzipped and `cache` is
/// empty.
std::filesystem::path unpacked(const std::filesystem::path& path,
                               const std::filesystem::path& cache,
                               const MostBytes& most = {});

/// The same for a deflated member of a zip file, whose data begins at `offset`.
std::filesystem::path unpacked_member(const File& zip, const ZipMember& member,
                                      std::int64_t offset,
                                      const std::filesystem::path& cache,
                                      const MostBytes& most = {});

}  // namespace millstream
