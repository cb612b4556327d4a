#include "millstream/workers/message.h"

#include <string_view>

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  accept_or_refuse([&] {
    const Task task = decoded_task(bytes);
    const std::string again = encoded(task);
    require(again.size() <= size && bytes.starts_with(again));
  });
  accept_or_refuse([&] {
    const std::string again = encoded(decoded_host_values(bytes));
    require(again.size() <= size && bytes.starts_with(again));
  });
  accept_or_refuse([&] {
    const Failure failure = decoded_failure(bytes);
    const std::string again = encoded(failure);
    require(again.size() <= size && bytes.starts_with(again));
  });
  return accept_or_refuse([&] {
    const MessageHeader header = header_of(bytes);
    require(header.bytes >= 0 && header.kind >= MessageKind::kSetup);
    require(header.kind <= MessageKind::kFailed);
  });
}
