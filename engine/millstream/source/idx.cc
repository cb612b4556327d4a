#include "millstream/source/idx.h"

#include <memory>
#include <utility>

#include "millstream/codec/idx.h"
#include "millstream/core/error.h"
#include "millstream/source/unpack.h"

namespace millstream {
namespace {

MappedColumn idx_column(const FieldFiles& field, const std::filesystem::path& cache) {
  if (field.paths.empty()) {
    throw ArgumentError(text("'", field.name, "' needs at least one file"));
  }
  std::vector<MappedPart> parts;
  Field row;
  bool big_endian = false;
  for (const auto& packed : field.paths) {
    File file(unpacked(packed, cache, [&](std::span<const std::byte> head) {
      ByteReader reader(head, packed.string());
      const ArrayLayout layout = parse_idx_header(reader);
      return layout.offset + layout.bytes();
    }));
    const auto header = file.bytes(0, kIdxHeader);
    ByteReader reader(header, packed.string());
    const ArrayLayout layout = parse_idx(reader, file.size());
    big_endian = layout.big_endian;
    Field here = row_field(field.name, layout);
    if (parts.empty()) row = here;
    if (here != row) {
      reader.fail(0, text(str(row), " as in ", field.paths.front().string()),
                  str(here));
    }
    parts.push_back(
        mapped_part(std::make_shared<const MappedFile>(std::move(file)), layout));
    parts.back().name = packed.string();
  }
  return {std::move(row),
          std::move(parts),
          {.stored = big_endian ? Stored::kBigEndian : Stored::kPlain}};
}

std::vector<MappedColumn> idx_columns(const std::vector<FieldFiles>& fields,
                                      const std::filesystem::path& cache) {
  std::vector<MappedColumn> columns;
  for (const FieldFiles& field : fields) columns.push_back(idx_column(field, cache));
  return columns;
}

}  // namespace

IdxSource::IdxSource(const std::vector<FieldFiles>& fields,
                     const std::filesystem::path& cache)
    : ColumnsSource(idx_columns(fields, cache)) {}

}  // namespace millstream
