#pragma once

#include <filesystem>
#include <vector>

#include "millstream/source/columns.h"

namespace millstream {

/// Samples whose fields are IDX files, as MNIST and its kin have them. Raw files are
/// mapped where they are, gzipped ones unpacked once into a cache folder. Throws
/// `DataError` for damaged files and fields that disagree, `ArgumentError` where a file
/// is gzipped and `cache` is empty.
ColumnsSource idx_source(const std::vector<FieldFiles>& fields,
                         const std::filesystem::path& cache = {});

}  // namespace millstream
