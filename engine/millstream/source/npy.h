#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millstream/source/columns.h"

namespace millstream {

/// The files in folder `path` with this extension, without hidden files, in natural
/// order (2 before 10). Returns `path` itself if it is not a folder. Throws `DataError`
/// if the folder has no such file.
std::vector<std::filesystem::path> shards_of(const std::filesystem::path& path,
                                             const std::string& extension);

/// Samples whose fields are .npy files. Several files may form one array. Files are
/// memory-mapped, so a source of any size opens at once. Throws `DataError` for a
/// damaged file, for a format that cannot be mapped, and for shards or fields that do
/// not match.
ColumnsSource npy_source(const std::vector<FieldFiles>& fields);

/// Samples whose fields are the arrays of an .npz file. Stored arrays are
/// memory-mapped; compressed arrays are unpacked once into `cache`. Reads the members
/// `names`, with or without ".npy", or all if there are none. Throws like `npy_source`,
/// and throws `ArgumentError` for a missing member, or if a member is compressed and
/// `cache` is empty.
ColumnsSource npz_source(const std::filesystem::path& path,
                         const std::vector<std::string>& names = {},
                         const std::filesystem::path& cache = {});

}  // namespace millstream
