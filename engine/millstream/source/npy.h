#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millstream/source/columns.h"

namespace millstream {

/// The files of that extension in a folder, but hidden ones, in the order of their
/// names (numbers in them by value: 2 before 10), or `path` itself where it is no
/// folder. Throws `DataError` for a folder without any.
std::vector<std::filesystem::path> shards_of(const std::filesystem::path& path,
                                             const std::string& extension);

/// Samples whose fields are .npy files, or lists or folders of them that make up one
/// array. Files are mapped: a source of any size opens at once. Throws `DataError` for
/// a file that is damaged or of a kind that cannot be mapped, and for shards or fields
/// that disagree.
ColumnsSource npy_source(const std::vector<FieldFiles>& fields);

/// Samples whose fields are the arrays of an .npz file: stored ones are mapped where
/// they are, deflated ones unpacked once into a cache folder. Takes the members
/// `names`, with or without ".npy", or where there are none all. Throws as `npy_source`
/// does, and `ArgumentError` for a name that is not there, or where a member is
/// deflated and `cache` is empty.
ColumnsSource npz_source(const std::filesystem::path& path,
                         const std::vector<std::string>& names = {},
                         const std::filesystem::path& cache = {});

}  // namespace millstream
