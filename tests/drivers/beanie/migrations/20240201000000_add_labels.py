"""A list of labels, made by an update with a pipeline."""

from beanie import Document, free_fall_migration


class Note(Document):
    name: str
    tag: str

    class Settings:
        name = "notes"


class Forward:
    @free_fall_migration(document_models=[Note])
    async def add(self, session) -> None:
        await Note.get_pymongo_collection().update_many({}, [{"$set": {"labels": ["$tag"]}}], session=session)


class Backward:
    @free_fall_migration(document_models=[Note])
    async def remove(self, session) -> None:
        await Note.get_pymongo_collection().update_many({}, {"$unset": {"labels": ""}}, session=session)
