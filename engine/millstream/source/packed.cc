#include "millstream/source/packed.h"

#include <memory>
#include <utility>

#include "millstream/codec/packed.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

ColumnsSource records(File file, const PackedLayout& layout) {
  const std::int64_t record = record_bytes(layout.schema);
  const auto mapped = std::make_shared<const MappedFile>(std::move(file));
  std::vector<MappedColumn> columns;
  std::int64_t offset = layout.offset;
  for (const Field& field : layout.schema) {
    columns.push_back({field, {{mapped, offset, record, layout.records}}});
    offset += byte_size(field);
  }
  return ColumnsSource(std::move(columns));
}

}  // namespace

ColumnsSource packed_source(const std::filesystem::path& path) {
  File file(path);
  const auto header = file.bytes(0, kPackedHeader);
  ByteReader reader(header, path.string());
  const PackedLayout layout = parse_packed(reader, file.size());
  return records(std::move(file), layout);
}

ColumnsSource packed_source(const std::filesystem::path& path, const Schema& schema,
                            std::int64_t offset) {
  File file(path);
  const std::int64_t record = record_bytes(schema);
  if (offset < 0) throw ArgumentError(text("offset must be at least 0, not ", offset));
  const std::int64_t there = file.size() - offset;
  if (there < 0) {
    throw DataError({.file = path.string(),
                     .offset = offset,
                     .expected = "records",
                     .found = text("a file of ", file.size(), " bytes")});
  }
  if (there % record != 0) {
    throw DataError(
        {.file = path.string(),
         .offset = file.size() - there % record,
         .expected = text("whole records of ", record, " bytes"),
         .found = text(there % record, " bytes after ", there / record, " records")});
  }
  return records(std::move(file), {schema, there / record, offset});
}

}  // namespace millstream
